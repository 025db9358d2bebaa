// Does what tools that install from Git do with charts and objects:
//
//	render CHART NAMESPACE VALUES   prints the objects as YAML; VALUES are JSON and must fit the chart's schema
//	lint CHART NAMESPACE            is `helm lint --strict`: fails on errors and warnings
//	status                          prints what kstatus (Flux, helm --wait) sees in the objects on standard input, which are
//	                                a list as JSON: a line for each object with its status and the message
//	health SCRIPT                   prints the same for Argo CD with this health script in Lua
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	switch arguments := os.Args[1:]; {
	case len(arguments) == 4 && arguments[0] == "render":
		renderChart(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 3 && arguments[0] == "lint":
		lintChart(arguments[1], arguments[2])
	case len(arguments) == 1 && arguments[0] == "status":
		printStatus()
	case len(arguments) == 2 && arguments[0] == "health":
		printHealth(arguments[1])
	default:
		fail(fmt.Errorf("usage: render CHART NAMESPACE VALUES | lint CHART NAMESPACE | status | health SCRIPT"))
	}
}

func renderChart(folder, namespace, valuesText string) {
	chart, err := loader.Load(folder)
	fail(err)
	given := map[string]any{}
	fail(json.Unmarshal([]byte(valuesText), &given))
	release := common.ReleaseOptions{Name: "kubeon", Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(chart, given, release, common.DefaultCapabilities)
	fail(err)
	files, err := engine.Engine{Strict: true}.Render(chart, values)
	fail(err)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !strings.HasPrefix(path.Base(name), "_") && path.Ext(name) == ".yaml" {
			fmt.Printf("---\n# %s\n%s\n", name, files[name])
		}
	}
}

func lintChart(folder, namespace string) {
	linter := lint.RunAll(folder, map[string]any{}, namespace)
	for _, message := range linter.Messages {
		fmt.Fprintln(os.Stderr, message)
	}
	if linter.HighestSeverity >= support.WarningSev {
		os.Exit(1)
	}
}

func objects() []map[string]any {
	var list []json.RawMessage
	fail(json.NewDecoder(os.Stdin).Decode(&list))
	found := make([]map[string]any, 0, len(list))
	for _, text := range list {
		object := &unstructured.Unstructured{}
		fail(object.UnmarshalJSON(text))
		found = append(found, object.Object)
	}
	return found
}

func printStatus() {
	for _, object := range objects() {
		result, err := status.Compute(&unstructured.Unstructured{Object: object})
		fail(err)
		fmt.Println(result.Status, result.Message)
	}
}

// Runs the script as Argo CD does: it reads the object from the variable `obj` and returns a table with status and message.
func printHealth(script string) {
	text, err := os.ReadFile(script)
	fail(err)
	for _, object := range objects() {
		state := lua.NewState()
		state.SetGlobal("obj", toLua(state, object))
		fail(state.DoString(string(text)))
		health, isTable := state.Get(-1).(*lua.LTable)
		if !isTable {
			fail(fmt.Errorf("%s returned no table", script))
		}
		fmt.Println(health.RawGetString("status"), health.RawGetString("message"))
		state.Close()
	}
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range value {
			table.RawSetString(key, toLua(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	default:
		return lua.LNil
	}
}
