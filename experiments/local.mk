# experiments: one folder per claim.
EXTRA_DIST += experiments/00-quickstart/README.md experiments/00-quickstart/backprop.yaml \
	experiments/00-quickstart/petra.yaml
