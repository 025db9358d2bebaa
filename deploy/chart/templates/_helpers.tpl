{{/* The labels of every object. */}}
{{- define "kubeon.labels" -}}
app.kubernetes.io/name: kubeon
app.kubernetes.io/part-of: kubeon
{{- end }}

{{/* The labels by which Services and policies select the operator's pods. */}}
{{- define "kubeon.selectorLabels" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/name: kubeon
{{- end }}

{{/* An image: its repository, its tag or the version of the chart, and its digest if there is one. */}}
{{- define "kubeon.imageOf" -}}
{{ .image.repository }}:{{ .image.tag | default (printf "v%s" .version) }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The operator's image. */}}
{{- define "kubeon.image" -}}
{{ include "kubeon.imageOf" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}
