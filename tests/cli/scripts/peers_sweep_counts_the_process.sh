# How the driver's numbers become those of one process: its own line, the only line, a difference.
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 77; }
mkdir bin
cat >bin/nvidia-smi <<'FAKE'
#!/bin/sh
case $1 in
--query-gpu=*version) cat before ;;
--query-gpu=*) cat after ;;
--query-compute-apps=*) sed "s/OWN/$PPID/" apps ;;
*) exit 2 ;;
esac
FAKE
chmod +x bin/nvidia-smi
printf 'GPU-a, 100, 580.1\nGPU-b, 7, 580.1\n' >before
printf 'GPU-a, 2148\nGPU-b, 7\n' >after
ask() {
    PATH=$PWD/bin:$PATH python3 -c '
import sys
sys.path.insert(0, sys.argv[1])
import worker
gpu = worker.Gpu()
gpu.uuid = "GPU-a"
count, how = gpu.process_bytes(2**30)
print(gpu.driver, count and count // 2**20, how)' "$SOURCE/bench/peers"
}
printf 'GPU-b, OWN, 5\nGPU-a, 1, 4000\nGPU-a, OWN, 3000\n' >apps
ask
printf 'GPU-a, 1, 3000\nGPU-b, 2, 5\n' >apps
ask
echo "GPU-a, 1, 3" >apps # of another process: ours has a GiB
ask
echo "GPU-a, 1, [N/A]" >apps
ask
: >apps
ask
printf 'GPU-a, 1000\n' >after # others gave back what we took
ask
rm bin/nvidia-smi
PATH=$PWD/bin:$PATH
command -v nvidia-smi >/dev/null || ask | sed 's/^/without: /'
command -v nvidia-smi >/dev/null && echo "without: None None not known: nvidia-smi does not tell"
true
