// Uses the packages of Helm on a chart:
//
//	render CHART NAMESPACE VALUES   prints the objects as YAML; VALUES are JSON and must fit the chart's schema
//	lint CHART NAMESPACE            is `helm lint --strict`: fails on errors and warnings
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
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
	default:
		fail(fmt.Errorf("usage: render CHART NAMESPACE VALUES | lint CHART NAMESPACE"))
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
