gitckpt() {
@BODY@
}
gitckpt
