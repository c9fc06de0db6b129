{{- define "mxr.name" -}}
{{- if contains "mxr" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-mxr" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "mxr.labels" -}}
app.kubernetes.io/name: mxr
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels of the pods of one component: (list . "registry") */}}
{{- define "mxr.selector" -}}
app.kubernetes.io/name: mxr
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* (list . .Values.image) */}}
{{- define "mxr.image" -}}
{{- $image := index . 1 }}
image: {{ if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest | quote }}{{ else }}{{ printf "%s:%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) | quote }}{{ end }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "mxr.scheme" -}}
{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- define "mxr.url" -}}
{{ include "mxr.scheme" . }}://{{ include "mxr.name" . }}.{{ .Release.Namespace }}.svc:8765
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "mxr.check" -}}
{{- $external := .Values.database.urlSecret.name }}
{{- if and .Values.ingress.enabled (not .Values.trustedProxies) }}
{{- fail "trustedProxies: give the addresses of the ingress controllers, such as the network of the pods. Otherwise all clients of the ingress have its address, and share the limits of one client." }}
{{- end }}
{{- if and (not $external) (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) }}
{{- fail "replicas: SQLite is for one registry. Set database.urlSecret.name to a Secret with the URL of PostgreSQL, and store.url to a bucket, or replicas to 1." }}
{{- end }}
{{- if and $external (not .Values.store.url) }}
{{- fail "store.url: with PostgreSQL (database.urlSecret.name), the bytes need a bucket that every registry reaches: s3://BUCKET/PREFIX." }}
{{- end }}
{{- if and $external (not .Values.signing.keySecret.name) }}
{{- fail "signing.keySecret.name: the registries of one database sign with one key. `openssl genpkey -algorithm ed25519 -out signing.key` makes one, `kubectl create secret generic NAME --from-file=signing.key` its Secret." }}
{{- end }}
{{- $clients := or .Values.workers.pools .Values.cacheFill.enabled }}
{{- if and $clients (not .Values.tls.secretName) (not .Values.plaintext) (not .Values.workers.registryUrl) }}
{{- fail "tls.secretName: the clients of this chart send tokens to the registry. Give it a certificate, or set plaintext to true in a network that you trust." }}
{{- end }}
{{- if and .Values.workers.pools (not .Values.workers.tokenSecret.name) }}
{{- fail "workers.tokenSecret.name: workers need a token. `mxr-registry token create gpu-hosts --scopes work` makes one; put it into a Secret." }}
{{- end }}
{{- range .Values.workers.pools }}
{{- if and (eq .mode "scaledjob") (not $.Values.keda.tokenSecret.name) }}
{{- fail (printf "keda.tokenSecret.name: the pool %s scales by the queue, which KEDA reads with a token. `mxr-registry token create keda --scopes metrics` makes one; put it into a Secret." .name) }}
{{- end }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.tokenSecret.name) }}
{{- fail "serviceMonitor.tokenSecret.name: /metrics needs a token. `mxr-registry token create prometheus --scopes metrics` makes one; put it into a Secret." }}
{{- end }}
{{- if and .Values.cacheFill.enabled (not .Values.cacheFill.tokenSecret.name) }}
{{- fail "cacheFill.tokenSecret.name: fetching needs a token. `mxr-registry token create serving --scopes fetch` makes one; put it into a Secret." }}
{{- end }}
{{- if and .Values.cacheFill.enabled (not .Values.cacheFill.lock) (not .Values.cacheFill.lockConfigMap.name) }}
{{- fail "cacheFill.lock: give the text of a lock (--set-file cacheFill.lock=mxr.lock), or cacheFill.lockConfigMap.name." }}
{{- end }}
{{- $names := list }}
{{- range .Values.workers.pools }}
{{- if has .name $names }}{{ fail (printf "workers.pools: two pools have the name %s." .name) }}{{ end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}

{{- define "mxr.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Variables by which a client finds the registry and its token, and its mounts: (list . tokenSecret url) */}}
{{- define "mxr.client.env" -}}
{{- $root := index . 0 }}
- {name: MXR_REGISTRY, value: {{ index . 1 | quote }}}
- {name: MXR_TOKEN_FILE, value: /run/mxr/token/token}
{{- if $root.Values.caSecret.name }}
- {name: MXR_CA_FILE, value: /run/mxr/ca/ca.crt}
{{- end }}
{{- if $root.Values.plaintext }}
- {name: MXR_PLAINTEXT, value: "1"}
{{- end }}
{{- end }}

{{- define "mxr.client.mounts" -}}
- {name: token, mountPath: /run/mxr/token, readOnly: true}
{{- if .Values.caSecret.name }}
- {name: ca, mountPath: /run/mxr/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "mxr.client.volumes" -}}
{{- $root := index . 0 }}{{ $token := index . 1 }}
- name: token
  secret: {secretName: {{ $token.name }}, defaultMode: 0440, items: [{key: {{ $token.key }}, path: token}]}
{{- if $root.Values.caSecret.name }}
- name: ca
  secret: {secretName: {{ $root.Values.caSecret.name }}, items: [{key: {{ $root.Values.caSecret.key }}, path: ca.crt}]}
{{- end }}
{{- end }}

{{/* The Secrets of database and store are files, which the registry reads again: a new one needs no restart. */}}
{{- define "mxr.registry.mounts" -}}
{{- if .Values.database.urlSecret.name }}
- {name: database, mountPath: /run/mxr/database, readOnly: true}
{{- end }}
{{- if .Values.store.credentialsSecret }}
- {name: s3, mountPath: /run/mxr/s3, readOnly: true}
{{- end }}
{{- if .Values.signing.keySecret.name }}
- {name: signing, mountPath: /run/mxr/signing, readOnly: true}
{{- end }}
{{- end }}

{{- define "mxr.database.volume" -}}
{{- with .Values.database.urlSecret -}}
- name: database
  secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: url}]}
{{- end }}
{{- end }}

{{- define "mxr.registry.volumes" -}}
{{- if .Values.database.urlSecret.name }}
{{ include "mxr.database.volume" . }}
{{- end }}
{{- with .Values.store.credentialsSecret }}
- name: s3
  secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: credentials, path: credentials}]}
{{- end }}
{{- if .Values.signing.keySecret.name }}
- name: signing
  secret: {secretName: {{ .Values.signing.keySecret.name }}, defaultMode: 0440, items: [{key: {{ .Values.signing.keySecret.key }}, path: key}]}
{{- end }}
{{- end }}

{{/* Settings of the registry, for `serve` and every other command. */}}
{{- define "mxr.registry.env" -}}
- {name: MXR_REGISTRY_CONFIG, value: /etc/mxr/registry.toml}
{{- if .Values.database.urlSecret.name }}
- {name: MXR_DATABASE_URL_FILE, value: /run/mxr/database/url}
{{- end }}
{{- if .Values.signing.keySecret.name }}
- {name: MXR_SIGNING_KEY_FILE, value: /run/mxr/signing/key}
{{- end }}
{{- with .Values.store }}
{{- if .url }}
- {name: MXR_STORE_URL, value: {{ .url | quote }}}
{{- range $name, $value := dict "ENDPOINT" .endpoint "PUBLIC_ENDPOINT" .publicEndpoint "REGION" .region }}
{{- if $value }}
- {name: MXR_S3_{{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
- {name: MXR_S3_SIGNED, value: {{ .signed | quote }}}
{{- if .credentialsSecret }}
- {name: AWS_SHARED_CREDENTIALS_FILE, value: /run/mxr/s3/credentials}
{{- end }}
{{- end }}
{{- end }}
{{- $service := include "mxr.name" . }}
{{- $names := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) }}
{{- if .Values.ingress.enabled }}{{ $names = append $names .Values.ingress.host }}{{ end }}
- {name: MXR_SERVE_ALLOWED_HOSTS, value: {{ concat $names .Values.allowedHosts | join " " | quote }}}
{{- with .Values.trustedProxies }}
- {name: MXR_SERVE_TRUSTED_PROXIES, value: {{ join " " . | quote }}}
{{- end }}
{{- if .Values.tls.secretName }}
- {name: MXR_SERVE_TLS_CERT, value: /run/mxr/tls/tls.crt}
- {name: MXR_SERVE_TLS_KEY, value: /run/mxr/tls/tls.key}
{{- end }}
{{- range $section, $values := .Values.settings }}
{{- range $name, $value := $values }}
{{- /* Every number of values.yaml is a float, which would be written as 1.073741824e+09. */}}
{{- $text := toString $value }}
{{- if kindIs "slice" $value }}{{ $text = join " " $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ $text = ternary (printf "%.0f" $value) $text (eq $value (floor $value)) }}{{ end }}
- {name: MXR_{{ upper $section }}_{{ upper $name }}, value: {{ $text | quote }}}
{{- end }}
{{- end }}
{{- end }}
