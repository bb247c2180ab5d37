ebb help use_liger_kernel
