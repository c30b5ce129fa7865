/* SPDX-License-Identifier: Apache-2.0 */
/* The version of petra. */
#pragma once

/* The release, such as "0.1.0". */
const char *petra_version(void);

/* The commit that the program was built from: 12 hexadecimal digits, with "-dirty" if tracked files had been changed;
 * in a build from a release archive the commit of the archive; "unknown" if neither is known. */
const char *petra_version_git_commit(void);
