{{/*
The rules with the values put in. files/rules.yaml is plain Prometheus, complete with the default
numbers, so that promtool checks the very file and anyone can use it without Helm; it never goes
through tpl, which would eat {{ $labels }}. A number is put in by replacing the exact piece of text
that holds the default, and a piece that is not there fails the rendering: a rule that is edited
without this list cannot silently lose its value.
*/}}
{{- define "rto.rules" -}}
{{- $rules := .Values.monitoring.rules }}
{{- $text := .Files.Get "files/rules.yaml" }}
{{- range $pair := list
  (list "namespace_name:training_job_restarts:delta5m > 3" (printf "namespace_name:training_job_restarts:delta5m > %d" (int $rules.restartBurst)))
  (list "training_job_starts_without_completion > 10" (printf "training_job_starts_without_completion > %d" (int $rules.startsMinusCompletions)))
  (list "namespace_name:training_job_start_count_total:max > 10" (printf "namespace_name:training_job_start_count_total:max > %d" (int $rules.startsAbove)))
  (list "(training_job_restarts_since_progress) >= 3" (printf "(training_job_restarts_since_progress) >= %d" (int $rules.restartsWithoutProgress)))
  (list "3 * max by (namespace, name) (training_job_checkpoint_interval_seconds > 0)" (printf "%v * max by (namespace, name) (training_job_checkpoint_interval_seconds > 0)" $rules.checkpointOverdueIntervals))
  (list "(training_job_work_at_risk_seconds) > 7200" (printf "(training_job_work_at_risk_seconds) > %d" (int $rules.workAtRiskSeconds)))
  (list "2 * max by (namespace, name) (training_job_checkpoint_interval_recommended_seconds)" (printf "%v * max by (namespace, name) (training_job_checkpoint_interval_recommended_seconds)" $rules.intervalTooLongFactor))
  (list "[24h]) > 0.2 * 86400" (printf "[24h]) > %v * 86400" $rules.lostWorkShare))
  (list "training_job_start_count_total:max[6h])) > 0.5" (printf "training_job_start_count_total:max[6h])) > %v" $rules.failingShare))
  (list "training_job_start_count_total:max[6h])) > 5" (printf "training_job_start_count_total:max[6h])) > %d" (int $rules.failingStarts)))
  (list "watch_last_activity_timestamp_seconds > 900" (printf "watch_last_activity_timestamp_seconds > %d" (int $rules.watchStalledSeconds)))
  (list "handler_runs_total[15m])) > 0.2" (printf "handler_runs_total[15m])) > %v" $rules.handlerErrorShare))
  (list "queue_oldest_seconds) > 300" (printf "queue_oldest_seconds) > %d" (int $rules.queueStuckSeconds)))
  (list "up{job=\"resumable-training-operator\"}" (printf "up{job=%q}" (include "rto.name" .))) }}
{{- if not (contains (first $pair) $text) }}
{{- fail (printf "files/rules.yaml does not contain %q: the chart cannot put its value in" (first $pair)) }}
{{- end }}
{{- $text = replace (first $pair) (last $pair) $text }}
{{- end }}
{{- $known := list }}
{{- $groups := list }}
{{- range $group := (fromYaml $text).groups }}
{{- $kept := list }}
{{- range $rule := $group.rules }}
{{- if $rule.alert }}
{{- $known = append $known $rule.alert }}
{{- $_ := set $rule "labels" (merge (dict) $rules.alertLabels $rule.labels) }}
{{- $_ := set $rule.annotations "runbook_url" (replace "{alert}" $rule.alert $rules.runbookURL) }}
{{- if and $rules.dashboardURL (contains "$labels.name }}" $rule.annotations.description) }}
{{- $_ := set $rule.annotations "dashboard_url" (printf "%s?var-namespace={{ $labels.namespace }}&var-name={{ $labels.name }}" $rules.dashboardURL) }}
{{- end }}
{{- if and $rules.joinTeam (contains "$labels.name }}" $rule.annotations.description) }}
{{- $expr := trim $rule.expr }}
{{- $info := "max by (namespace, name, team) (training_job_info)" }}
{{- $_ := set $rule "expr" (printf "(\n%s\n) * on (namespace, name) group_left (team) %s\nor on (namespace, name) (\n%s\n)\n" $expr $info $expr) }}
{{- end }}
{{- with get $rules.overrides $rule.alert }}
{{- with .severity }}{{ $_ := set $rule.labels "severity" . }}{{ end }}
{{- with .for }}{{ $_ := set $rule "for" . }}{{ end }}
{{- with .keepFiringFor }}{{ $_ := set $rule "keep_firing_for" . }}{{ end }}
{{- end }}
{{- end }}
{{- if not (and $rule.alert (has $rule.alert $rules.disabled)) }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- if $kept }}
{{- $groups = append $groups (merge (dict "rules" $kept) (omit $group "rules")) }}
{{- end }}
{{- end }}
{{- range $name, $_ := $rules.overrides }}
{{- if not (has $name $known) }}
{{- fail (printf "monitoring.rules.overrides names %q, which is no alert of this chart: one of %s" $name (join ", " $known)) }}
{{- end }}
{{- end }}
{{- range $name := $rules.disabled }}
{{- if not (has $name $known) }}
{{- fail (printf "monitoring.rules.disabled names %q, which is no alert of this chart: one of %s" $name (join ", " $known)) }}
{{- end }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}
