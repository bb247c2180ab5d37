EBB_LOG=library,checkpont ebb help >/dev/null
EBB_LOG=checkpoint,mem ebb help >/dev/null
EBB_LOG=all ebb help >/dev/null
