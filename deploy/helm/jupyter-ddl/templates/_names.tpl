{{/* Names are fixed, and none has the release's: the package and the hub's settings look for them. */}}
{{- define "jupyter-ddl.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Where clusters run, and where notebooks do: lists of names, as JSON. */}}
{{- define "jupyter-ddl.namespaces" -}}
{{- .Values.namespaces | default (list .Release.Namespace) | uniq | toJson -}}
{{- end }}

{{- define "jupyter-ddl.notebookNamespaces" -}}
{{- .Values.users.namespaces | default (list .Release.Namespace) | uniq | toJson -}}
{{- end }}

{{/* What the package prints that rights take, as a list of texts, one an object. */}}
{{- define "jupyter-ddl.rbac" -}}
{{- $objects := list -}}
{{- range regexSplit "(?m)^---\\s*$" (.Files.Get "files/rbac.yaml") -1 -}}
{{- if fromYaml . -}}{{- $objects = append $objects (trim .) -}}{{- end -}}
{{- end -}}
{{- $objects | toJson -}}
{{- end }}

{{/* Who may start clusters in .namespace: subjects of a binding.  Takes .root, too. */}}
{{- define "jupyter-ddl.users" -}}
{{- $notebooks := include "jupyter-ddl.notebookNamespaces" .root | fromJsonArray -}}
{{- $clusters := include "jupyter-ddl.namespaces" .root | fromJsonArray -}}
{{- $theirs := list -}}
{{- if has .namespace $notebooks -}}
{{- $theirs = list .namespace -}}
{{- else -}}
{{- range $notebooks -}}{{- if not (has . $clusters) -}}{{- $theirs = append $theirs . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- with .root.Values.users.serviceAccount.name -}}
{{- $name := . -}}
{{- range $theirs }}
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ . }}
{{- end }}
{{- end }}
{{- range .root.Values.users.groups }}
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The pods of clusters, as the operator labels them. */}}
{{- define "jupyter-ddl.pods" -}}
matchExpressions:
- {key: dask.org/cluster-name, operator: Exists}
{{- end }}
