printf 'stop: ["."]\nstop_strings: ["!"]\n' >conf.yaml
ebb generate conf.yaml model_name_or_path=model
