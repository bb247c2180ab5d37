ebb plot run --width 99999
