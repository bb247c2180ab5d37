for size in 20 24000 0.8 0.07 1.5; do ebb plan model=m memory_budget=$size; done
echo "memory_budget: 20" >conf.yaml
ebb plan conf.yaml
