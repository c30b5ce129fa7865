# SPDX-License-Identifier: Apache-2.0
# packaging: recipes for package managers; debian/ stands where dpkg-buildpackage looks for it.
EXTRA_DIST += debian/changelog debian/control debian/copyright debian/petra.docs debian/rules \
	debian/source/format packaging/README.md packaging/spack/package.py environment.yml
