#!/bin/sh
# Makes a folder that can be carried to another machine from a build with EBB_BUNDLE=ON: the program, the libraries it
# needs, their licences, and with --tests what tests/gpu.sh runs.
#
# usage: bundle.sh BUILD FOLDER [--tests]
# Left out, for every system has its own: the C and C++ libraries. NVIDIA's come with the driver and the toolkit.
set -eu
build=$1 folder=$2 tests=${3:-}
cd "$(dirname "$0")/.."

complain() {
    echo "bundle.sh: $*" >&2
    exit 1
}

mark="Ebb, with the libraries it needs"
if [ -e "$folder" ]; then
    if [ -n "$(ls -A "$folder")" ] && [ "$(head -n 1 "$folder/README.txt" 2>/dev/null)" != "$mark" ]; then
        complain "'$folder' holds something else; name an empty or a new folder"
    fi
    rm -rf "$folder"
fi
mkdir -p "$folder/bin" "$folder/lib" "$folder/licences"
folder=$(cd "$folder" && pwd)
echo "$mark" >"$folder/README.txt"

strip -o "$folder/bin/ebb" "$build/ebb"
strip --strip-unneeded -o "$folder/lib/libebb_rooms.so" "$build/libebb_rooms.so"
cp LICENSE "$folder/licences/ebb"
if [ "$tests" = --tests ]; then
    for program in "$build"/test_device_cuda* "$build"/test_op_* "$build"/test_program_executor "$build"/test_train_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then
            strip -o "$folder/bin/$(basename "$program")" "$program"
        fi
    done
    mkdir -p "$folder/tests/golden"
    cp -R tests/golden/models "$folder/tests/golden/models"
    cp tests/golden/distill.json tests/golden/preference.json "$folder/tests/golden/"
    cp tests/gpu.sh tests/gpu_sanitize.sh "$folder/"
fi

# needs FILE ...: the paths of what they need, all the way down.
needs() {
    ldd "$@" | awk '/=> \// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libebb_rooms|ld-linux[^/]*)\.so'
}

# add FILE: copies it under the name it is asked for by, and its package's licence.
add() {
    name=$(basename "$1")
    [ ! -e "$folder/lib/$name" ] || return 0
    cp -L "$1" "$folder/lib/$name"
    real=$(readlink -f "$1")
    package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null || true)
    package=${package%%:*}
    if [ -f "/usr/share/doc/$package/copyright" ]; then
        cp "/usr/share/doc/$package/copyright" "$folder/licences/$package"
    else
        echo "bundle.sh: no licence text was found for $1: add it to '$folder/licences' before you pass the folder on" >&2
    fi
}

# loaded NAME: the path of a library that is loaded at run time; copied too.
loaded() {
    path=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }')
    [ -n "$path" ] || complain "$1 is not installed"
    add "$path"
    echo "$path"
}

dnnl_path=$(loaded "$(grep -ao 'libdnnl\.so\.[0-9]' "$folder/lib/libebb_rooms.so" | head -n 1)")
cairo_path=$(loaded libcairo.so.2)
for path in $(needs "$folder"/bin/* "$folder/lib/libebb_rooms.so" "$dnnl_path" "$cairo_path"); do
    add "$path"
done

# Debian's licence texts name the whole ones.
for text in $(grep -oh '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$folder"/licences/* | sort -u); do
    [ ! -f "$text" ] || cp -L "$text" "$folder/licences/"
done

glibc=$(objdump -T "$folder"/bin/* "$folder"/lib/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
cuda=$(grep -ao 'libcublasLt\.so\.' "$folder/lib/libebb_rooms.so" | head -n 1)
gpus=$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES_USED:.*=//p' "$build/CMakeCache.txt")
toolkit=$(sed -n 's/^CUDAToolkit_VERSION_USED:.*=//p' "$build/CMakeCache.txt")
{
    cat <<TEXT

    bin/ebb help

works where this folder lies; nothing is installed. The machine must have:

  Linux on $(uname -m), glibc ${glibc#GLIBC_} or newer (ldd --version), and libstdc++
TEXT
    if [ -n "$cuda" ]; then
        cat <<TEXT

and for device: cuda

  an NVIDIA GPU of compute capability 8.0 or higher; this program has code for: $gpus
    (90a-real: for 9.0 alone; 86-real: for 8.6 and up to 8.9; 120-virtual: for all from 12.0 on)
  NVIDIA's driver for CUDA ${toolkit%.*} or newer (nvidia-smi)
  cuBLAS of CUDA ${toolkit%%.*}: libcublasLt.so.${toolkit%%.*}
  cuDNN 9.18 or newer: libcudnn.so.9

cuBLAS and cuDNN are looked for in the folders of EBB_LIBRARY_PATH, by the loader (LD_LIBRARY_PATH, ldconfig), in
/usr/local/cuda, and in an active Python environment (VIRTUAL_ENV, CONDA_PREFIX), since PyTorch brings both:

    source VENV/bin/activate, or: pip install nvidia-cublas nvidia-cudnn-cu13
    EBB_LOG=library bin/ebb ...     tells which files are used

The program contains NVIDIA's CUDA runtime library (cudart), which is NVIDIA's and under its CUDA licence.
TEXT
    else
        echo "
It was built without CUDA: device: cpu is all it has."
    fi
    if [ "$tests" = --tests ]; then
        echo "
    sh gpu.sh

tests it on the machine's GPU, in less than ten minutes."
    fi
    echo "
licences/ has the licence of Ebb and of each library in lib/, and the whole texts that those name."
} >>"$folder/README.txt"

"$folder/bin/ebb" version >/dev/null
echo "$folder: $(du -sm "$folder" | cut -f 1) MiB; README.txt in it says what a machine must have"
