ebb help >/dev/full
