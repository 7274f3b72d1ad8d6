{{- define "operator.name" -}}
{{- $name := .Values.name | default .Release.Name -}}
{{- if gt (len $name) 52 }}{{ fail (printf "The name %q has more than 52 characters: set name." $name) }}{{ end -}}
{{- $name -}}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . | quote }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "operator.hasLease" -}}
{{- if or .Values.leaderElection (gt (int .Values.shards) 1) }}true{{ end -}}
{{- end }}

{{/* Whether rights are needed in certain namespaces only. */}}
{{- define "operator.isExact" -}}
{{- if and .Values.namespaces (not (regexMatch "[*?!,\\[]" (join " " .Values.namespaces))) }}true{{ end -}}
{{- end }}

{{- define "operator.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else if .tag }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end }}

{{/* The rules for what has a namespace. */}}
{{- define "operator.rules" -}}
{{- if .Values.events }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- with .Values.rules }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The webhooks of one type, of the values in `hooks`. */}}
{{- define "operator.webhooks" -}}
{{- $root := .root -}}
{{- $name := include "operator.name" $root -}}
{{- range $id, $options := .hooks }}
- name: {{ printf "%s.%s.%s" $id $name $root.Release.Namespace }}
  clientConfig:
    service:
      name: {{ $name }}-webhooks
      namespace: {{ $root.Release.Namespace | quote }}
      port: 443
      path: /{{ $id }}
{{ toYaml $options | indent 2 }}
{{- end }}
{{- end }}

{{/* The annotations of what runs before the release is deleted, in the order of the weight. */}}
{{- define "operator.uninstall" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
