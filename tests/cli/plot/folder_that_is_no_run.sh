mkdir run
ebb plot run
