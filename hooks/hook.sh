#!/bin/sh
# Record a checkpoint of a new commit: hook.sh EVENT PYTHON PACKAGE_DIR [ARGUMENTS OF THE HOOK].
#
# A plain commit is recorded here, by three git processes, as starting Python costs more than these.
# Everything else is left to gitckpt/hook.py: other events, the worktree of a run, text that needs
# care, and whatever fails here. The exit status is 0: a checkpoint that fails never stops git.
event=$1 python=$2 package_dir=$3
shift 3
LC_ALL=C IFS=' 	
' newline='
'
export LC_ALL

# Leave the event to Python, which also reports what goes wrong.
use_python() {
	if [ ! -x "$python" ]; then
		printf 'gitckpt: %s: %s is missing; run: git ckpt init\n' "$event" "$python" >&2
	elif [ ! -f "$package_dir/gitckpt/hook.py" ]; then
		printf 'gitckpt: %s: %s/gitckpt/hook.py is missing; run: git ckpt init\n' "$event" "$package_dir" >&2
	else
		code='import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; run(sys.argv[1:])'
		"$python" -I -S -c "$code" "$package_dir" "$event" "$@"
	fi
	exit 0
}

# Set $text to a TOML basic string of one line of text. Fails where that takes more than quoting.
quote() {
	rest=$1
	[ ${#rest} -le 900 ] || return 1
	case $rest in
	*[[:cntrl:]]*) return 1 ;;
	*[!\ -~]*)
		# Not ASCII. U+0080 to U+00BF, U+2028 and U+2029 may be line breaks to a reader of text.
		case $rest in *"$(printf '\302')"* | *"$(printf '\342\200\250')"* | *"$(printf '\342\200\251')"*) return 1 ;; esac
		printf '%s' "$rest" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 || return 1
		;;
	esac
	text=
	while :; do
		case $rest in *[\"\\]*) ;; *) break ;; esac
		plain=${rest%%[\"\\]*}
		rest=${rest#"$plain"}
		after=${rest#?}
		text=$text$plain\\${rest%"$after"}
		rest=$after
	done
	text=\"$text$rest\"
}

# Set $id to the UUID made of a commit's oid: of two hooks that record one commit, the second fails.
id_of() {
	rest=${1#????????}
	a=${1%"$rest"}
	b=${rest%"${rest#????}"}
	rest=${rest#????}
	c=${rest%"${rest#????}"}
	rest=${rest#????}
	d=${rest%"${rest#????}"}
	rest=${rest#????}
	id=$a-$b-4${c#?}-8${d#?}-${rest%"${rest#????????????}"}
}

# Record one commit: record OID PARENTS SUBJECT. Fails where it was not recorded. With $keep, a ref
# keeps the commit alive, in place of the refs of its parents.
record() {
	id_of "$1"
	message=
	if [ -n "$3" ]; then
		quote "$3" || return 1
		message="message = $text
"
	fi
	blob=$(
		git hash-object -w --stdin <<END
version = 1
id = "$id"
phase = "commit-complete"
timestamp = "$stamp"
git_sha = "$1"
${branch}trigger = "post-commit"
${message}errors = []

[state]
END
	) || return 1
	# These come first: a line too many is passed over, a missing one is not noticed.
	printf '\n%s %s commit-complete %s\n' "$1" "$id" "$stamp" >>"$private/links" || return 1
	printf '\n%s %s in %s\n' "$id" "$blob" "$worktree" >>"$private/written" || return 1
	create="create refs/checkpoints/$id $blob"
	changes=$create
	if [ -n "$keep" ]; then
		changes="$changes
update refs/keep/ckpt/$1 $1"
		for parent in $2; do # a packed one stays until maintenance
			[ ! -f "$common_dir/refs/keep/ckpt/$parent" ] || changes="$changes
delete refs/keep/ckpt/$parent $parent"
		done
	fi
	apply "$changes" && return
	git rev-parse --quiet --verify "refs/checkpoints/$id" >/dev/null && return # another hook was first
	# A lock, or something else at the ref of a parent: let that stay until maintenance.
	[ -n "$keep" ] && apply "$create
update refs/keep/ckpt/$1 $1"
}

# Change refs, all or none: apply "COMMANDS OF UPDATE-REF".
apply() {
	git update-ref --stdin <<END
$1
END
}

# Set $number to the minute of a timestamp as YYYYMMDDHHMM, or to 0 if it is malformed.
number() {
	number=0
	case $1 in [0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:*) ;; *) return ;; esac
	rest=${1%:*}
	number=${rest%%-*}
	rest=${rest#*-}
	number=$number${rest%%-*}
	rest=${rest#*-}
	number=$number${rest%%T*}
	rest=${rest#*T}
	number=$number${rest%%:*}${rest#*:}
}

[ "$event" = post-commit ] || use_python "$@"

# git has checked that this repository may be trusted: it calls the hook at the top of a worktree.
git_dir=${GIT_DIR:-.git}
if [ -f "$git_dir" ]; then
	read -r word git_dir <"$git_dir"
	[ "$word" = gitdir: ] || use_python
fi
common_dir=$git_dir
if [ -f "$git_dir/commondir" ]; then
	IFS= read -r common_dir <"$git_dir/commondir"
	case $common_dir in /*) ;; *) common_dir=$git_dir/$common_dir ;; esac
fi
private=$common_dir/ckpt
[ -f "$git_dir/HEAD" ] && [ ! -L "$git_dir/HEAD" ] && [ ! -e "$git_dir/ckpt-run" ] || use_python
[ ! -L "$private" ] && [ -f "$private/links" ] && [ ! -L "$private/links" ] || use_python
[ -f "$private/written" ] && [ ! -L "$private/written" ] || use_python

# A rebase, am or bisect in progress ends with a checkpoint of its own.
[ ! -d "$git_dir/rebase-merge" ] && [ ! -d "$git_dir/rebase-apply" ] && [ ! -f "$git_dir/BISECT_LOG" ] || exit 0

read -r head <"$git_dir/HEAD"
[ "$head" != 'ref: refs/heads/.invalid' ] || head="ref: $(git symbolic-ref -q HEAD)" # a reftable
branch=
case $head in
'ref: refs/heads/'*)
	quote "${head#ref: refs/heads/}" || use_python
	branch="branch = $text
"
	;;
esac

# The key of this worktree in `written`: a linked one may be made again under the same name.
worktree=:
if [ "$common_dir" != "$git_dir" ]; then
	made=$(date -r "$git_dir/commondir" +%s%N 2>/dev/null)
	case $made in '' | *[!0-9]*) use_python ;; esac
	worktree=${git_dir##*/}:$made
	[ ${#made} -ge 18 ] || use_python
	case $worktree in *[[:cntrl:]]*) use_python ;; esac
fi

# One git says what the commit is and, in the trace of its start, which time it is: `date` would be
# one more process. The trace begins with a line of JSON; GIT_TRACE2_EVENT names a descriptor.
commit_format='%H%n%P%n%s'
facts=$(GIT_TRACE2_EVENT=3 GIT_TRACE2_EVENT_BRIEF=0 git log -1 --no-show-signature --encoding=UTF-8 \
	--format="$commit_format" HEAD 3>&1 2>/dev/null) || use_python
stamp=${facts#*'"time":"'}
stamp=${stamp%%'"'*}
while :; do
	case $facts in '{"event":"'*) facts=${facts#*"$newline"} ;; *) break ;; esac
done
commit=${facts%%"$newline"*}
facts=${facts#*"$newline"}
parents=${facts%%"$newline"*}
facts=${facts#*"$newline"}
subject=${facts%%"$newline"*}
case $stamp in
[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z) ;;
*) stamp=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z) ;;
esac
first=${parents%% *}
missed=
[ -z "$first" ] || [ -f "$common_dir/refs/keep/ckpt/$first" ] || missed=yes
keep=yes
record "$commit" "$parents" "$subject" 2>/dev/null || use_python "$commit"
newest=$id

# Two commits at once: the hook of the first saw HEAD at the second. Record what has no checkpoint.
if [ -n "$missed" ]; then
	keep= # the refs of newer commits keep these
	missed=$(git log -n 16 --first-parent --since=1.minute --no-show-signature --encoding=UTF-8 \
		--format="$commit_format" "$first" 2>/dev/null)
	micros=1${stamp##*.}
	micros=${micros%Z}
	while read -r commit && read -r parents && IFS= read -r subject; do
		# Older commits come before newer ones: a microsecond earlier each.
		[ "$micros" -le 1000000 ] || micros=$((micros - 1))
		stamp=${stamp%.*}.${micros#1}Z
		id_of "$commit"
		[ ! -f "$common_dir/refs/checkpoints/$id" ] || break
		record "$commit" "$parents" "$subject" 2>/dev/null || record "$commit" "$parents" '' 2>/dev/null || break
	done <<END
$missed
END
fi

# Maintenance once a day, and at once where history was cut off; packing after one commit in 256.
# The file holds the time at which maintenance ended; Python decides whether a day has passed.
ended=
[ ! -f "$private/maintained" ] || read -r ended <"$private/maintained" || ended=
number "$stamp"
now=$number
number "${ended%% *}"
age=$((now - number))
case $newest in 00*) event=pack ;; esac
if [ $age -lt 0 ] || [ $age -ge 10000 ] || [ "$common_dir/shallow" -nt "$private/maintained" ]; then
	event=keep-up
fi
# Linked worktrees are captured once an hour.
if [ "$event" = post-commit ] && [ -d "$common_dir/worktrees" ]; then
	ended=
	[ ! -f "$private/rescued" ] || read -r ended <"$private/rescued" || ended=
	number "$ended"
	age=$((now - number))
	[ $age -ge 0 ] && [ $age -lt 100 ] || event=keep-up
fi
[ "$event" = post-commit ] || use_python
exit 0
