# src/cli: main and one file per subcommand.
bin_PROGRAMS += petra
petra_SOURCES = src/cli/main.c
petra_LDADD = $(PETRA_LDADD)
