# >>> gitckpt >>>
# Records a checkpoint. Written by `git ckpt init`, taken out by `git ckpt uninit`; what you change in here is lost.
if [ "${GITCKPT_SKIP:-0}" != 0 ]; then
	:
elif [ ! -x @PYTHON@ ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\n' @EVENT@ @PYTHON@ >&2 || :
elif [ ! -f @MODULE@ ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\n' @EVENT@ @MODULE@ >&2 || :
else
	@PYTHON@ -I -S -c 'import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; run(sys.argv[1:])' @PACKAGE_DIR@ @EVENT@ "$@" </dev/null || :
fi
# <<< gitckpt <<<
