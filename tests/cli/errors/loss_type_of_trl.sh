# What TRL calls the loss of supervised training is none of the preference losses' names.
printf 'model_name_or_path: model\nmax_length: 64\nloss_type: chunked_nll\n' >conf.yaml
ebb plan conf.yaml
