# A file of the library's name that is none stands before the system's: it is passed over, and drawing goes on.
mkdir lib
echo nothing >lib/libcairo.so.2
echo '{"step": 1, "loss": 2}' >run.jsonl
EBB_LIBRARY_PATH=$PWD/lib ebb plot run.jsonl | sed 's/pixels, .*/pixels/'
