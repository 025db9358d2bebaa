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

{{/* The operator's image. Without a tag: the version of the chart. */}}
{{- define "kubeon.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end }}
