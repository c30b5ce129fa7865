# SPDX-License-Identifier: Apache-2.0
# Writes the manual page petra-NAME(1) in man(7)'s macros from the help of the program:
#   { petra --version; petra --help; petra help NAME; } | awk -v name=NAME -f manual.awk

# `code` in bold, also over lines; options with minus signs, so that they can be copied into a shell.
function styled(text,   i, c, before, out) {
  gsub(/ +/, " ", text)
  for (i = 1; i <= length(text); i++) {
    c = substr(text, i, 1)
    before = i == 1 ? " " : substr(text, i - 1, 1)
    if (c == "`")
      c = (bold = !bold) ? "\\fB" : "\\fR"
    else if (c == "\\")
      c = "\\e"
    else if (c == "-" && (bold || index(" (`'[-", before)) && substr(text, i + 1, 1) ~ /[^ ]/)
      c = "\\-"
    else if (i == 1 && index(".'", c))
      c = "\\&" c
    out = out c
  }
  return out
}

function minus(text) {
  gsub(/-/, "\\-", text)
  return text
}

# "CONFIG.yaml [--set KEY=VALUE]...": literal text in bold, placeholders in italics.
function synopsis(text,   size, out) {
  for (; text != ""; text = substr(text, size + 1)) {
    size = text ~ /^\.\.\./ ? 3 : match(text, /^[A-Za-z0-9._-]+/) ? RLENGTH : 1
    if (text ~ /^\.\.\./ || text !~ /^[A-Za-z0-9._-]/)
      out = out substr(text, 1, size)
    else
      out = out (text ~ /^[A-Z]/ ? "\\fI" : "\\fB") minus(substr(text, 1, size)) "\\fR"
  }
  return out
}

function end_lines() {
  if (shown)
    print ".fi\n.RE\n.PP"
  shown = 0
}

NR == 1 { version = $0 }
!part && $1 == name { summary = $0; sub(/^ *[^ ]+ +/, "", summary) }
$0 ~ "^usage: petra " name "( |$)" {
  part = "help"
  printf ".TH PETRA-%s 1 \"\" \"%s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n", toupper(name), version
  printf "petra-%s \\- %s\n.SH SYNOPSIS\n\\fBpetra %s\\fR ", name, styled(summary), name
  print synopsis(substr($0, length("usage: petra " name " ") + 1)) "\n.SH DESCRIPTION"
  getline
  next
}
part == "help" && $0 == "options:" {
  end_lines()
  part = "options"
  print ".SH OPTIONS"
  next
}

# Paragraphs are separated by an empty line. Indented lines are printed as they are. A word that two blanks separate from its
# description begins a list item, which continues in lines that are indented as far as its text. An option begins a paragraph.
part == "help" {
  match($0, /^ */)
  blanks = RLENGTH
  continues = indent && blanks == indent
  if (blanks && !continues) {
    if (!shown)
      print ".PP\n.RS 4\n.nf"
    shown = 1
    print substr($0, blanks + 1)
    next
  }
  end_lines()
  if ($0 == "")
    print ".PP"
  else if (match($0, /^[^ ]+   */)) {
    indent = RLENGTH
    print ".TP\n.B " $1 "\n" styled(substr($0, indent + 1))
  } else {
    if (indent && !continues || /^--/) {
      print ".PP"
      indent = 0
    }
    print styled(substr($0, blanks + 1))
  }
}
part == "options" && /^  --/ {
  bold = 0
  option = substr($0, 5)
  match(option, /   *|$/)
  help = substr(option, RSTART + RLENGTH)
  option = substr(option, 1, RSTART - 1)
  value = index(option, " ") ? substr(option, index(option, " ") + 1) : ""
  sub(/ .*/, "", option)
  print ".TP\n\\fB\\-\\-" minus(option) "\\fR " synopsis(value) "\n" styled(help)
  next
}
part == "options" && NF { sub(/^ +/, ""); print styled($0) }

# A subcommand in Python has its help there, which this machine may lack.
END {
  if (part)
    end_lines()
  else
    printf ".TH PETRA-%s 1 \"\" \"%s\" \"User Commands\"\n.SH NAME\npetra-%s \\- %s\n.SH DESCRIPTION\n`petra help %s` prints the help; it needs Python 3.\n", toupper(name), version, name, styled(summary), name
  print ".SH SEE ALSO\n.BR petra (1),\nwhich has the files of a run, the exit status and examples."
}
