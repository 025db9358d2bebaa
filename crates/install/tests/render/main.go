// Renders a chart with the engine of Helm: render CHART NAMESPACE VALUES, with the values as JSON. Checks the values against
// the schema of the chart. Prints the objects as YAML.
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
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: render CHART NAMESPACE VALUES"))
	}
	chart, err := loader.Load(os.Args[1])
	fail(err)
	given := map[string]any{}
	fail(json.Unmarshal([]byte(os.Args[3]), &given))
	release := common.ReleaseOptions{Name: "kubeon", Namespace: os.Args[2], Revision: 1, IsInstall: true}
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
