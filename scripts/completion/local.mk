# SPDX-License-Identifier: Apache-2.0
# scripts/completion: installed by the names under which the shells look for them.
EXTRA_DIST += scripts/completion/petra.bash scripts/completion/_petra
bashcompletiondir = $(datadir)/bash-completion/completions
zshcompletiondir = $(datadir)/zsh/site-functions
install-data-local: install-completion
uninstall-local: uninstall-completion
.PHONY: install-completion uninstall-completion
install-completion:
	$(MKDIR_P) "$(DESTDIR)$(bashcompletiondir)" "$(DESTDIR)$(zshcompletiondir)"
	$(INSTALL_DATA) $(srcdir)/scripts/completion/petra.bash "$(DESTDIR)$(bashcompletiondir)/petra"
	$(INSTALL_DATA) $(srcdir)/scripts/completion/_petra "$(DESTDIR)$(zshcompletiondir)/_petra"
uninstall-completion:
	rm -f "$(DESTDIR)$(bashcompletiondir)/petra" "$(DESTDIR)$(zshcompletiondir)/_petra"
