{{- define "rto.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rto.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "rto.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rto.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rto.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "rto.labels" -}}
{{ include "rto.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: resumable-training
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Of what `helm test` makes: no selector of the operator's may find it. */}}
{{- define "rto.testLabels" -}}
app.kubernetes.io/name: {{ include "rto.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
app.kubernetes.io/part-of: resumable-training
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "rto.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "rto.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* image reference from {image, appVersion}; a digest wins over a tag */}}
{{- define "rto.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .appVersion .image.tag) }}
{{- end }}
{{- end }}

{{/* The ConfigMap that keeps what was counted against nodes. */}}
{{- define "rto.nodeLedger" -}}
{{- printf "%s-nodes" (include "rto.fullname" . | trunc 56 | trimSuffix "-") }}
{{- end }}

{{/* The Lease of the replica that works. */}}
{{- define "rto.lease" -}}
{{- include "rto.fullname" . }}
{{- end }}

{{/* What the operator may do in a namespace that it looks after: the same for Roles and for the ClusterRole. */}}
{{- define "rto.namespacedRules" -}}
- apiGroups: [resumable-training.dev]
  resources: [resumabletrainingjobs]
  verbs: [get, list, watch, delete] # delete: spec.ttlSecondsAfterFinished
- apiGroups: [resumable-training.dev]
  resources: [resumabletrainingjobs/status]
  verbs: [update]
# Clusters that enforce it (OwnerReferencesPermissionEnforcement) want this of whoever makes an
# object that blocks the deletion of its owner, as the pods do.
- apiGroups: [resumable-training.dev]
  resources: [resumabletrainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# What a node says against a pod that does not get to run there.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
# spec.scheduling.gang: the gang's PodGroup, and why Kueue has not let a gang go yet.
- apiGroups: [scheduling.volcano.sh, scheduling.x-k8s.io, scheduling.k8s.io]
  resources: [podgroups]
  verbs: [create, patch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get]
{{- end }}

{{/* "yes" when an object of monitoring.coreos.com is to be rendered; fails where failIfMissing says so.
     Takes {root, kind, version}; the version is v1 where none is given. */}}
{{- define "rto.renderMonitor" -}}
{{- $api := printf "monitoring.coreos.com/%s/%s" (default "v1" .version) .kind }}
{{- $mode := .root.Values.monitoring.renderMode }}
{{- if or (eq $mode "alwaysRender") (.root.Capabilities.APIVersions.Has $api) -}}
yes
{{- else if eq $mode "failIfMissing" }}
{{- fail (printf "%s is not in this cluster: install the Prometheus operator's CRDs, or set monitoring.renderMode=skipIfMissing" $api) }}
{{- end }}
{{- end }}
