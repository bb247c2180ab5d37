# What a report of a fault has to say. Versions, the processor and what it can do are of the machine.
ebb version | sed -E 's/[0-9]+\.[0-9]+(\.[0-9]+)?/N/g; s/^cpu: .*, oneDNN/cpu: NAME, oneDNN/; s/isa 0x[0-9a-f]+/isa X/
    s/[0-9]+ threads.*/N threads/; s/^cuda: .*/cuda: WHY/'
