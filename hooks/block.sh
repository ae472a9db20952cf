# >>> gitckpt >>>
# Records a checkpoint. Written by `git ckpt init`, taken out by `git ckpt uninit`; what you change in here is lost.
if [ "${GITCKPT_SKIP:-0}" != 0 ]; then
	:
elif [ ! -f @SCRIPT@ ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\n' @EVENT@ @SCRIPT@ >&2 || :
else
	sh @SCRIPT@ @EVENT@ @PYTHON@ @PACKAGE_DIR@ "$@" </dev/null || :
fi
# <<< gitckpt <<<
