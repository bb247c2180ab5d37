echo '{"choice": "everything stays"}' >plan.json
ebb plot plan.json
