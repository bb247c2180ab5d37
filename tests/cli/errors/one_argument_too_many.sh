touch a.yaml b.yaml
ebb sft a.yaml b.yaml
