ebb help budget
ebb help checkpoint
exit 0
