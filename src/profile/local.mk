# SPDX-License-Identifier: Apache-2.0
# src/profile: measuring and fitting costs.
libpetra_a_SOURCES += \
	src/profile/profile.h \
	src/profile/profile_fit.c \
	src/profile/profile_link.c \
	src/profile/profile_measure.c \
	src/profile/profile_pipeline.c
EXTRA_DIST += src/profile/README.md
