# src/data: data sets, augmentation, and the loader with its threads.
libpetra_a_SOURCES += \
	src/data/augment.c src/data/augment.h \
	src/data/cifar.c src/data/cifar.h \
	src/data/dataset.c src/data/dataset.h \
	src/data/loader.c src/data/loader.h \
	src/data/shapes.c src/data/shapes.h
