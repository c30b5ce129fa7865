# SPDX-License-Identifier: Apache-2.0
# experiments: one folder per claim.
EXTRA_DIST += experiments/README.md \
	experiments/simulations.py \
	experiments/sweeps.py
EXTRA_DIST += experiments/00-quickstart/README.md
# Of an installed program the quickstart's configs are its examples.
exampledir = $(docdir)/examples
dist_example_DATA = experiments/00-quickstart/backprop.yaml experiments/00-quickstart/petra.yaml
EXTRA_DIST += experiments/01-first-light/README.md \
	experiments/01-first-light/base-30.yaml \
	experiments/01-first-light/base-90.yaml \
	experiments/01-first-light/base.yaml \
	experiments/01-first-light/cells.csv \
	experiments/01-first-light/first_light.png \
	experiments/01-first-light/first_light.py \
	experiments/01-first-light/ninety.yaml \
	experiments/01-first-light/rates.yaml
EXTRA_DIST += experiments/02-table-3/README.md \
	experiments/02-table-3/revnet18-cifar10.yaml \
	experiments/02-table-3/revnet34-cifar10.yaml \
	experiments/02-table-3/revnet50-imagenet.yaml \
	experiments/02-table-3/table_3.py \
	experiments/02-table-3/table_6.py
EXTRA_DIST += experiments/03-table-1/README.md \
	experiments/03-table-1/storage.yaml \
	experiments/03-table-1/table-1.yaml \
	experiments/03-table-1/table_1.py
EXTRA_DIST += experiments/04-figure-1/README.md \
	experiments/04-figure-1/figure-1.csv \
	experiments/04-figure-1/figure-1.png \
	experiments/04-figure-1/figure-1.yaml \
	experiments/04-figure-1/figure_1.py
EXTRA_DIST += experiments/05-table-5/README.md \
	experiments/05-table-5/revnet18.yaml \
	experiments/05-table-5/revnet34.yaml \
	experiments/05-table-5/table-5.csv \
	experiments/05-table-5/table_5.py
EXTRA_DIST += experiments/07-profile-predicts/README.md \
	experiments/07-profile-predicts/predict.py \
	experiments/07-profile-predicts/predicted.csv \
	experiments/07-profile-predicts/revnet18.yaml
EXTRA_DIST += experiments/08-scaling/README.md \
	experiments/08-scaling/scaling.csv \
	experiments/08-scaling/scaling.png \
	experiments/08-scaling/scaling.py \
	experiments/08-scaling/scaling.yaml
EXTRA_DIST += experiments/09-communication/README.md \
	experiments/09-communication/communication.csv \
	experiments/09-communication/communication.png \
	experiments/09-communication/communication.py \
	experiments/09-communication/communication.yaml
EXTRA_DIST += experiments/10-jitter/README.md \
	experiments/10-jitter/jitter.csv \
	experiments/10-jitter/jitter.png \
	experiments/10-jitter/jitter.py \
	experiments/10-jitter/jitter.yaml \
	experiments/10-jitter/lags.csv
EXTRA_DIST += experiments/11-invertible-downsampling/README.md \
	experiments/11-invertible-downsampling/base.yaml \
	experiments/11-invertible-downsampling/cells.csv \
	experiments/11-invertible-downsampling/invertible-downsampling.yaml \
	experiments/11-invertible-downsampling/invertible_downsampling.py \
	experiments/11-invertible-downsampling/memory.csv
EXTRA_DIST += experiments/12-fig-5-6/README.md \
	experiments/12-fig-5-6/fig-5-6.yaml \
	experiments/12-fig-5-6/fig_5_6.py \
	experiments/12-fig-5-6/figure-5.png \
	experiments/12-fig-5-6/figure-6.png \
	experiments/12-fig-5-6/from_weights.csv \
	experiments/12-fig-5-6/probes.csv \
	experiments/12-fig-5-6/scales.csv
EXTRA_DIST += experiments/13-mitigations/README.md \
	experiments/13-mitigations/base.yaml \
	experiments/13-mitigations/cells.csv \
	experiments/13-mitigations/mitigations.csv \
	experiments/13-mitigations/mitigations-cifar10.png \
	experiments/13-mitigations/mitigations.png \
	experiments/13-mitigations/mitigations.py \
	experiments/13-mitigations/mitigations_cifar10.py \
	experiments/13-mitigations/petra-cifar10.yaml \
	experiments/13-mitigations/pipedream-cifar10.yaml
EXTRA_DIST += experiments/14-table-4/README.md \
	experiments/14-table-4/base-mini.yaml \
	experiments/14-table-4/base.yaml \
	experiments/14-table-4/cells.csv \
	experiments/14-table-4/row-6.csv \
	experiments/14-table-4/row_6.py \
	experiments/14-table-4/summary.csv \
	experiments/14-table-4/table-4-cifar10.yaml \
	experiments/14-table-4/table-4-mini.yaml \
	experiments/14-table-4/table-4.yaml \
	experiments/14-table-4/table_4.py \
	experiments/14-table-4/table_4_cifar10.py
EXTRA_DIST += experiments/15-fig-4/README.md \
	experiments/15-fig-4/base-mini.yaml \
	experiments/15-fig-4/base.yaml \
	experiments/15-fig-4/cells.csv \
	experiments/15-fig-4/fig-4-cifar10.png \
	experiments/15-fig-4/fig-4-cifar10.yaml \
	experiments/15-fig-4/fig-4-mini.png \
	experiments/15-fig-4/fig-4-mini.yaml \
	experiments/15-fig-4/fig-4.yaml \
	experiments/15-fig-4/fig_4.py \
	experiments/15-fig-4/other-rates.csv \
	experiments/15-fig-4/summary.csv
EXTRA_DIST += experiments/16-table-2/README.md \
	experiments/16-table-2/base-cifar10.yaml \
	experiments/16-table-2/base-imagenet.yaml \
	experiments/16-table-2/base-imagenet32.yaml \
	experiments/16-table-2/base-mini.yaml \
	experiments/16-table-2/cifar10.yaml \
	experiments/16-table-2/imagenet.yaml \
	experiments/16-table-2/imagenet32.yaml \
	experiments/16-table-2/summary.csv \
	experiments/16-table-2/table-2-mini.yaml
EXTRA_DIST += experiments/17-lag-under-jitter/README.md \
	experiments/17-lag-under-jitter/base-mini.yaml \
	experiments/17-lag-under-jitter/base.yaml \
	experiments/17-lag-under-jitter/lag-under-jitter-mini.yaml \
	experiments/17-lag-under-jitter/lag-under-jitter.yaml \
	experiments/17-lag-under-jitter/lag.csv \
	experiments/17-lag-under-jitter/lag_under_jitter.png \
	experiments/17-lag-under-jitter/lag_under_jitter.py \
	experiments/17-lag-under-jitter/lags.csv \
	experiments/17-lag-under-jitter/training.csv
EXTRA_DIST += experiments/18-gpu-training/README.md \
	experiments/18-gpu-training/backprop-bf16.yaml \
	experiments/18-gpu-training/backprop-tf32.yaml \
	experiments/18-gpu-training/petra-k1-bf16.yaml \
	experiments/18-gpu-training/petra-k1-tf32.yaml \
	experiments/18-gpu-training/petra-k4-bf16.yaml \
	experiments/18-gpu-training/petra-k4-tf32.yaml
EXTRA_DIST += experiments/19-predicted-and-measured/README.md \
	experiments/19-predicted-and-measured/predicted.csv \
	experiments/19-predicted-and-measured/predicted.png \
	experiments/19-predicted-and-measured/predicted.py \
	experiments/19-predicted-and-measured/revnet18.yaml \
	experiments/19-predicted-and-measured/two_hosts.sh
EXTRA_DIST += experiments/20-depth-or-delay/README.md \
	experiments/20-depth-or-delay/cells.csv \
	experiments/20-depth-or-delay/depth-or-delay.yaml \
	experiments/20-depth-or-delay/depth_or_delay.png \
	experiments/20-depth-or-delay/depth_or_delay.py
EXTRA_DIST += experiments/21-reversible-gpt/README.md \
	experiments/21-reversible-gpt/base.yaml \
	experiments/21-reversible-gpt/losses.csv \
	experiments/21-reversible-gpt/memory.csv \
	experiments/21-reversible-gpt/reversible.png \
	experiments/21-reversible-gpt/reversible.py \
	experiments/21-reversible-gpt/training.yaml
EXTRA_DIST += experiments/22-optimisers-under-delay/README.md \
	experiments/22-optimisers-under-delay/base.yaml \
	experiments/22-optimisers-under-delay/cells.csv \
	experiments/22-optimisers-under-delay/cosines.csv \
	experiments/22-optimisers-under-delay/lower-rates.yaml \
	experiments/22-optimisers-under-delay/no-delay-base.yaml \
	experiments/22-optimisers-under-delay/no-delay.yaml \
	experiments/22-optimisers-under-delay/one-update-late-base.yaml \
	experiments/22-optimisers-under-delay/one-update-late.yaml \
	experiments/22-optimisers-under-delay/optimisers.png \
	experiments/22-optimisers-under-delay/optimisers.py \
	experiments/22-optimisers-under-delay/pipelines.yaml
EXTRA_DIST += experiments/23-reconstruction-of-transformers/README.md \
	experiments/23-reconstruction-of-transformers/base.yaml \
	experiments/23-reconstruction-of-transformers/depths.yaml \
	experiments/23-reconstruction-of-transformers/errors.csv \
	experiments/23-reconstruction-of-transformers/reconstruction.png \
	experiments/23-reconstruction-of-transformers/reconstruction.py
EXTRA_DIST += experiments/24-bf16-beside-fp32/README.md \
	experiments/24-bf16-beside-fp32/base.yaml \
	experiments/24-bf16-beside-fp32/cells.csv \
	experiments/24-bf16-beside-fp32/epochs.csv \
	experiments/24-bf16-beside-fp32/precision.png \
	experiments/24-bf16-beside-fp32/precision.py \
	experiments/24-bf16-beside-fp32/precision.yaml
EXTRA_DIST += experiments/25-longer-under-delay/README.md \
	experiments/25-longer-under-delay/base-16.yaml \
	experiments/25-longer-under-delay/base.yaml \
	experiments/25-longer-under-delay/cells.csv \
	experiments/25-longer-under-delay/long.yaml \
	experiments/25-longer-under-delay/longer.png \
	experiments/25-longer-under-delay/longer.py \
	experiments/25-longer-under-delay/rates.yaml
EXTRA_DIST += experiments/26-orders-of-pytorch/README.md \
	experiments/26-orders-of-pytorch/orders.py \
	experiments/26-orders-of-pytorch/orders.csv \
	experiments/26-orders-of-pytorch/DualPipeV-16.csv \
	experiments/26-orders-of-pytorch/DualPipeV-8.csv \
	experiments/26-orders-of-pytorch/Interleaved1F1B-16.csv \
	experiments/26-orders-of-pytorch/Interleaved1F1B-8.csv \
	experiments/26-orders-of-pytorch/InterleavedZeroBubble-16.csv \
	experiments/26-orders-of-pytorch/InterleavedZeroBubble-8.csv \
	experiments/26-orders-of-pytorch/LoopedBFS-16.csv \
	experiments/26-orders-of-pytorch/LoopedBFS-8.csv \
	experiments/26-orders-of-pytorch/ZBVZeroBubble-16.csv \
	experiments/26-orders-of-pytorch/ZBVZeroBubble-8.csv
EXTRA_DIST += experiments/27-seconds-to-a-loss/README.md \
	experiments/27-seconds-to-a-loss/100gbe.yaml \
	experiments/27-seconds-to-a-loss/10gbe.yaml \
	experiments/27-seconds-to-a-loss/base.yaml \
	experiments/27-seconds-to-a-loss/cells.csv \
	experiments/27-seconds-to-a-loss/chosen.yaml \
	experiments/27-seconds-to-a-loss/memory.csv \
	experiments/27-seconds-to-a-loss/model.yaml \
	experiments/27-seconds-to-a-loss/nvlink.yaml \
	experiments/27-seconds-to-a-loss/rates.yaml \
	experiments/27-seconds-to-a-loss/reach.csv \
	experiments/27-seconds-to-a-loss/seconds.png \
	experiments/27-seconds-to-a-loss/seconds.py \
	experiments/27-seconds-to-a-loss/turns.csv \
	experiments/27-seconds-to-a-loss/wan.yaml
EXTRA_DIST += experiments/28-lossy-messages/README.md \
	experiments/28-lossy-messages/bytes.csv \
	experiments/28-lossy-messages/cells.csv \
	experiments/28-lossy-messages/lossy.png \
	experiments/28-lossy-messages/lossy.py \
	experiments/28-lossy-messages/revgpt-base.yaml \
	experiments/28-lossy-messages/revgpt.yaml \
	experiments/28-lossy-messages/revnet-base.yaml \
	experiments/28-lossy-messages/revnet.yaml
EXTRA_DIST += experiments/29-local-learning/README.md \
	experiments/29-local-learning/base.yaml \
	experiments/29-local-learning/cells.csv \
	experiments/29-local-learning/local.png \
	experiments/29-local-learning/local.py \
	experiments/29-local-learning/local.yaml \
	experiments/29-local-learning/stages.csv
EXTRA_DIST += experiments/30-couplings/README.md \
	experiments/30-couplings/base.yaml \
	experiments/30-couplings/best.yaml \
	experiments/30-couplings/cells.csv \
	experiments/30-couplings/couplings.png \
	experiments/30-couplings/couplings.py \
	experiments/30-couplings/inverse-seeds.yaml \
	experiments/30-couplings/inverse.yaml \
	experiments/30-couplings/lower-rate.yaml \
	experiments/30-couplings/no-delay-base.yaml \
	experiments/30-couplings/no-delay.yaml \
	experiments/30-couplings/rates.yaml \
	experiments/30-couplings/stages.csv
