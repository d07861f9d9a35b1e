# The supervisor for an image without Python, read by `supervise` with the command as arguments.
#
# POSIX sh with mv, sleep and date. The same files and promises as supervisor/loop.py, without
# what a shell cannot do: the trainer's output is not read, so it has no tail and no steps, nobody
# looks which files are open, and no signal's number is certain. Each state is one line of JSON,
# written whole and renamed. Must never start a trainer twice for one attempt.

state=none attempt=0 more= child= poller= stopped=0 started=0 asked=false term= kill_at= seq=0
grace=30 quiet= lingering=0 reach=left
read -r boot </proc/sys/kernel/random/uuid
while read -r name value rest; do
    case $name in
        Uid:) uid=$value ;;
        Gid:) gid=$value ;;
    esac
done </proc/self/status

now() { date +%s; }

# number FILE FIELD: the whole number of a field, empty where there is none.
number() {
    line=
    read -r line 2>/dev/null <"$run/$1"
    case $line in
        *"\"$2\":"*) ;;
        *) return ;;
    esac
    line=${line#*"\"$2\":"}
    line=${line# }
    echo "${line%%[!0-9]*}"
}

whole() { # FILE TEXT
    printf '%s\n' "$2" >"$run/$1.tmp" && mv "$run/$1.tmp" "$run/$1"
}

publish() {
    seq=$((seq + 1))
    trainer="\"state\":\"$state\",\"attempt\":$attempt,\"askedToStop\":$asked$more"
    text="{\"version\":1,\"bootID\":\"$boot\",\"sequence\":$seq,\"pid\":$$,\"uid\":$uid"
    text="$text,\"gid\":$gid,\"python\":\"\"${term:+,\"termReceivedAt\":$term}"
    text="$text,\"openForWriting\":null,\"lingering\":$lingering,\"stoppedAttempt\":$stopped,\"trainer\":{$trainer},\"writtenAt\":$(now)}"
    whole supervisor.json "$text"
}

# expand WORD: `$(RTJ_…)` by the environment, into $out.
expand() {
    out= rest=$1
    while :; do
        case $rest in
            *'$(RTJ_'*')'*) ;;
            *) break ;;
        esac
        head=${rest%%'$(RTJ_'*} tail=${rest#*'$(RTJ_'}
        name=RTJ_${tail%%')'*} rest=${tail#*')'}
        value="\$($name)" # unknown ones stay as they are
        case $name in
            *[!A-Z0-9_]*) ;;
            *) eval "[ -z \"\${$name+x}\" ] || value=\${$name}" ;;
        esac
        out=$out$head$value
    done
    out=$out$rest
}

# is_probe PID: a probe of the kubelet's, what one has started, or what is about to become one.
is_probe() {
    up=$1
    while [ "${up:-0}" -gt 1 ] && [ "$up" != "$$" ]; do
        words=
        while IFS= read -r line || [ -n "$line" ]; do words="$words $line"; done <"/proc/$up/cmdline"
        case $words in *"$here/supervise"*probe* | *runc*init*) return 0 ;; esac
        above=
        while read -r name value rest; do
            [ "$name" = PPid: ] && above=$value
        done <"/proc/$up/status"
        up=$above
    done 2>/dev/null
    return 1
}

# origin PID: whose it is, into $origin. `left`: a trainer started it, itself or through others. What
# has lost its parent is the first process's, which is this shell or a pod's shared one.
origin() {
    up=$1 life=
    while :; do
        case $up in
            "$poller") origin=poller && return ;;
            1 | "$$") origin=left && return ;;
            0) origin=exec && return ;;
        esac
        above=
        while read -r name value rest; do
            case $name in
                State:) life=${life:-$value} ;;
                PPid:) above=$value && break ;;
            esac
        done <"/proc/$up/status"
        case $life in Z | X | '') origin=dead && return ;; esac
        # One above it ended just now: the next look tells.
        [ -n "$above" ] || { origin=unsure && return; }
        up=$above
    done
}

# look all|left: kills what a trainer left, with `all` what an exec left too, in this container and
# in no other, and counts it in $lingering.
look() {
    mine= lingering=0
    read -r mine </proc/self/cgroup
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/} theirs=
        case $pid in
            1 | "$$" | "$poller") continue ;;
        esac
        read -r theirs <"$entry/cgroup"
        [ "$$" = 1 ] || [ "$theirs" = "$mine" ] || continue
        origin "$pid"
        case $origin in
            poller | dead) continue ;;
            exec) [ "$1" = all ] && ! is_probe "$pid" || continue ;;
        esac
        lingering=$((lingering + 1))
        [ "$origin" = unsure ] || kill -KILL "$pid"
    done
}

# sweep all|left: once more at least, for what was forked meanwhile.
sweep() {
    reach=$1
    # A container's first process has nobody above it; elsewhere the cgroup holds other programs.
    [ "$parent" = 0 ] || return
    look "$reach"
    look "$reach"
    for again in 1 2 3; do
        [ "$lingering" = 0 ] || look "$reach" # a killed one needs a moment
    done
}

# Again for what did not die: some wait for a device first.
tidy() {
    [ "$lingering" != 0 ] || return
    before=$lingering
    sweep "$reach"
    [ "$lingering" = "$before" ] || publish
}

start() {
    [ -f "$run/go.sh" ] || return
    wanted=$(number go.json attempt)
    [ -n "$wanted" ] && [ "$wanted" -gt "$started" ] && [ "$wanted" -gt "$stopped" ] || return
    [ -z "$term" ] || return
    before=$lingering
    sweep all
    [ "$lingering" = "$before" ] || publish
    [ "$lingering" = 0 ] || return
    whole plain.journal "$wanted" || return # before the effect
    started=$wanted attempt=$wanted asked=false kill_at=
    (
        trap - TERM INT HUP QUIT USR1
        exec 2>&3 3>&-
        placed=
        for word in "$@"; do
            case $word in *'$(RTJ_RESUME_ARGS)'*) placed=yes ;; esac
        done
        . "$run/go.sh"
        left=$#
        while [ "$left" -gt 0 ]; do
            expand "$1"
            shift
            set -- "$@" "$out"
            left=$((left - 1))
        done
        exec "$@"
    ) &
    child=$! state=running more=",\"pid\":$child,\"startedAt\":$(now)"
    publish
}

number_of_parent() {
    while read -r name value rest; do
        [ "$name" = PPid: ] && echo "$value"
    done <"/proc/$$/status"
}

ended() { # CODE
    code=$1 signal=
    [ "$code" -gt 128 ] && signal=$((code - 128)) && code=-$signal
    child= kill_at=
    whole plain.journal "$attempt $code"
    # Before it is told: what the trainer forked may still write.
    sweep left
    state=exited more=",\"exitCode\":$code${signal:+,\"signal\":$signal},\"endedAt\":$(now)"
    publish
    quiet=$(now)
}

stop() {
    wanted=$(number stop.json attempt)
    [ -n "$wanted" ] && [ "$wanted" -gt "$stopped" ] || return
    stopped=$wanted reach=left
    if [ -n "$child" ] && [ "$attempt" -le "$wanted" ]; then
        asked=true
        patience=$(number stop.json graceSeconds)
        if [ -z "$patience" ]; then
            kill -KILL "$child" 2>/dev/null
            kill_at=$(now)
        else
            kill -TERM "$child" 2>/dev/null
            kill_at=$(($(now) + patience))
        fi
    fi
    publish
}

leave() { # MESSAGE CODE
    publish
    kill "$poller" 2>/dev/null
    # A failure speaks of this end only: the container's next run must wait for its own.
    [ "$2" = 0 ] || mv -f "$run/release.json" "$run/release.seen" 2>/dev/null
    # Without its message an exit 0 would look like success.
    printf '%s' "$1" >"${RTJ_TERMINATION_LOG:-/dev/termination-log}" || exit $(($2 ? $2 : 1))
    exit "$2"
}

over() {
    [ -z "$child" ] && [ "$lingering" = 0 ] || return
    if [ -f "$run/release.json" ]; then
        message=released code=0
        [ ! -f "$run/release.sh" ] || . "$run/release.sh"
        leave "$message" "$code"
    fi
    if [ "$run/sidecar.beat" -nt "$run/beat.seen" ]; then
        : >"$run/beat.seen"
        quiet=$(now)
    elif [ $(($(now) - quiet)) -gt 300 ]; then
        leave abandoned 0
    fi
}

on_term() {
    [ -n "$term" ] || term=$(now)
    if [ -n "$child" ]; then
        asked=true
        kill -TERM "$child" 2>/dev/null
        kill_at=$(($(now) + grace))
    fi
    publish
}

# What a shell has to say of its jobs is no output of the trainer's.
exec 3>&2 2>/dev/null
trap on_term TERM INT HUP QUIT
trap : USR1
parent=$(number_of_parent)
known=$(number supervise.json trainerGraceSeconds)
grace=${known:-$grace} quiet=$(now)
: >"$run/beat.seen"
if [ -f "$run/plain.journal" ]; then
    # Whatever became of it, it is never started again.
    read -r started code <"$run/plain.journal"
    attempt=$started state=exited more=",\"containerRestarted\":true,\"endedAt\":$(now)"
    [ -z "$code" ] || more=",\"exitCode\":$code,\"endedAt\":$(now)"
fi
publish
# Wakes the loop below out of its `wait`, which nothing but a signal and an end can do.
while kill -USR1 $$ 2>/dev/null; do sleep 0.2 2>/dev/null || sleep 1; done &
poller=$!
while :; do
    stop
    [ -n "$child" ] || tidy
    [ -n "$child" ] || start "$@"
    over
    if [ -n "$kill_at" ] && [ -n "$child" ] && [ "$(now)" -ge "$kill_at" ]; then
        kill -KILL "$child" 2>/dev/null
    fi
    wait "${child:-$poller}"
    code=$?
    # Woken by a signal it is still there; else it has ended and was collected: by this wait, or
    # behind its back while the shell waited for another command. Then its code is still kept.
    if [ -n "$child" ] && ! kill -0 "$child" 2>/dev/null; then
        wait "$child"
        kept=$?
        [ "$kept" -eq 127 ] && [ "$code" -ne 138 ] || code=$kept # 138: woken by USR1
        ended "$code"
    fi
done
