# What no row could do without is said once, at the start.
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 77; }
gpu() {
    python3 "$SOURCE/bench/gpu.py" "$@" 2>err.txt
    echo "exit $?"
    sed -e "s|$PWD|HERE|; s|for [^:]*/ebb:|for EBB:|; s|GPU for EBB: .* (|GPU for EBB: WHY (|" err.txt
}
mkdir empty bundle bundle/bin
ln -s "$(command -v ebb)" bundle/bin/ebb
gpu --bin empty
gpu --bin bundle/bin/ebb --only ebb
gpu --bin bundle/bin --only ebb
gpu --bin bundle --only ebb
printf '#!/bin/sh\necho "no module named torch" >&2\nexit 1\n' >python
chmod +x python
gpu --bin bundle --device cpu --python ./python
printf '#!/bin/sh\necho False\n' >python
gpu --bin bundle --only peer --python ./python
