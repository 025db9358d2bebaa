module gitops

go 1.26.0

require (
	github.com/fluxcd/cli-utils v1.2.2
	github.com/yuin/gopher-lua v1.1.2
	helm.sh/helm/v4 v4.3.1
	k8s.io/apimachinery v0.36.3
)

require (
	dario.cat/mergo v1.0.1 // indirect
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/Masterminds/goutils v1.1.1 // indirect
	github.com/Masterminds/semver/v3 v3.5.0 // indirect
	github.com/Masterminds/sprig/v3 v3.3.0 // indirect
	github.com/asaskevich/govalidator v0.0.0-20230301143203-a9d515a09cc2 // indirect
	github.com/cyphar/filepath-securejoin v0.6.1 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-openapi/jsonpointer v0.21.0 // indirect
	github.com/go-openapi/jsonreference v0.20.2 // indirect
	github.com/go-openapi/swag v0.23.0 // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/huandu/xstrings v1.5.0 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/mitchellh/copystructure v1.2.0 // indirect
	github.com/mitchellh/reflectwalk v1.0.2 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/shopspring/decimal v1.4.0 // indirect
	github.com/spf13/cast v1.7.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	go.yaml.in/yaml/v3 v3.0.4 // indirect
	golang.org/x/crypto v0.47.0 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/oauth2 v0.34.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/term v0.39.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	k8s.io/api v0.36.3 // indirect
	k8s.io/apiextensions-apiserver v0.36.3 // indirect
	k8s.io/apiserver v0.36.3 // indirect
	k8s.io/client-go v0.36.3 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/kube-openapi v0.0.0-20260317180543-43fb72c5454a // indirect
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.3.3 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

// `./test` compiles the packages of Kubernetes' own modules for the bundle. Without the versions below, this program has the same
// ones (catalogue/go/kubernetes/v1.36.3), and only the packages of Helm are left to compile.
exclude github.com/cyphar/filepath-securejoin v0.7.0

exclude github.com/fxamacker/cbor/v2 v2.9.1

exclude github.com/go-logr/logr v1.4.4

exclude (
	github.com/go-openapi/jsonpointer v0.21.1
	github.com/go-openapi/jsonpointer v1.0.0
)

exclude (
	github.com/go-openapi/jsonreference v0.21.0
	github.com/go-openapi/jsonreference v1.0.0
)

exclude (
	github.com/go-openapi/swag v0.23.1
	github.com/go-openapi/swag v0.27.1
)

exclude github.com/google/gnostic-models v0.7.1

exclude go.yaml.in/yaml/v2 v2.4.4

exclude go.yaml.in/yaml/v3 v3.0.5

exclude (
	golang.org/x/crypto v0.53.0
	golang.org/x/crypto v0.58.0
)

exclude (
	golang.org/x/net v0.56.0
	golang.org/x/net v0.60.0
)

exclude golang.org/x/oauth2 v0.36.0

exclude (
	golang.org/x/sys v0.46.0
	golang.org/x/sys v0.49.0
)

exclude (
	golang.org/x/term v0.44.0
	golang.org/x/term v0.47.0
)

exclude (
	golang.org/x/text v0.38.0
	golang.org/x/text v0.43.0
)

exclude golang.org/x/time v0.15.0

exclude google.golang.org/protobuf v1.36.12

exclude k8s.io/api v0.37.1

exclude k8s.io/apiextensions-apiserver v0.37.1

exclude k8s.io/apimachinery v0.37.1

exclude k8s.io/apiserver v0.37.1

exclude k8s.io/client-go v0.37.1

exclude k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad

exclude (
	k8s.io/utils v0.0.0-20260507154919-ff6756f316d2
	k8s.io/utils v0.0.0-20260626114624-be93311217bd
)

exclude sigs.k8s.io/structured-merge-diff/v6 v6.4.2

exclude github.com/mailru/easyjson v0.9.0
