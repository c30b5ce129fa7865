# Completion of petra's command line in bash: subcommands, options, keys and values of --set, files. The words are those that the
# program itself tells (petra --help-completion), asked for once a shell. Needs nothing but bash 4.

# The words of the command line up to the cursor, in _petra_words: bash cuts at '=', which is put together again.
_petra_split() {
  local i piece last=""
  _petra_words=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    piece=${COMP_WORDS[i]}
    if ((i > 0)) && { [[ $piece == = ]] || [[ $last == = && $COMP_WORDBREAKS == *=* ]]; }; then
      _petra_words[-1]+=$piece
    else
      _petra_words+=("$piece")
    fi
    last=$piece
  done
}

# Offers those of the words $2 that begin with $1; the part of $1 that bash does not replace, up to the last '=', is left out.
_petra_offer() {
  local begin=""
  [[ $COMP_WORDBREAKS == *=* && $1 == *=* ]] && begin=${1%=*}=
  mapfile -t COMPREPLY < <(compgen -W "$2" -- "$1")
  COMPREPLY=("${COMPREPLY[@]#"$begin"}")
}

# Offers files (or folders, with -d) that begin with $1; $2 is the '=' part before them.
_petra_files() {
  local kind=-f name=${1#"$2"}
  [[ ${3-} == -d ]] && kind=-d
  mapfile -t COMPREPLY < <(compgen "$kind" -- "$name")
  [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$2}")
  compopt -o filenames 2>/dev/null
}

# The value of --set: $1 is what there is of KEY=VALUE, $2 what stands before it in the word.
_petra_set() {
  local kind name words key=${1%%=*}
  if [[ $1 != *=* ]]; then
    words=$(while read -r kind name words; do [[ $kind == key ]] && printf '%s%s= ' "$2" "$name"; done <<<"$_petra_table")
    _petra_offer "$2$1" "$words"
    compopt -o nospace 2>/dev/null
    return
  fi
  while read -r kind name words; do
    [[ $kind == key && $name == "$key" ]] || continue
    if [[ $words == FILE ]]; then
      _petra_files "$2$1" "$2$key="
    elif [[ -n $words ]]; then
      _petra_offer "$2$1" "$2$key=${words// / $2$key=}"
    fi
  done <<<"$_petra_table"
}

# The value of the option $1: $3 is what there is of it, $4 what stands before it in the word.
_petra_value() {
  local kind name command value
  while read -r kind name command value; do
    [[ $kind == option && $name == "$1" && $command == "$2" ]] || continue
    case $value in
      KEY=VALUE) _petra_set "$3" "$4" ;;
      FILE) _petra_files "$4$3" "$4" ;;
      DIR) _petra_files "$4$3" "$4" -d ;;
      *\|*) _petra_offer "$4$3" "$4${value//|/ $4}" ;;
    esac
    return 0
  done <<<"$_petra_table"
}

_petra() {
  local kind name command value current before subcommand words="" actions=""
  local -a _petra_words
  COMPREPLY=()
  if [[ ${_petra_program-} != "${COMP_WORDS[0]}" ]]; then
    _petra_table=$("${COMP_WORDS[0]/#\~/$HOME}" --help-completion 2>/dev/null) || return
    _petra_program=${COMP_WORDS[0]}
  fi
  _petra_split
  current=${_petra_words[-1]}
  if ((${#_petra_words[@]} <= 2)); then
    words=$(while read -r kind name value; do [[ $kind == command ]] && printf '%s ' "$name"; done <<<"$_petra_table")
    _petra_offer "$current" "$words --help --version"
    return
  fi
  subcommand=${_petra_words[1]} before=${_petra_words[-2]}
  if [[ $before == --?* && $before != *=* ]]; then
    while read -r kind name command value; do
      if [[ $kind == option && $name == "$before" && $command == "$subcommand" && -n $value ]]; then
        _petra_value "$before" "$subcommand" "$current" ""
        return
      fi
    done <<<"$_petra_table"
  fi
  if [[ $current == --*=* ]]; then
    _petra_value "${current%%=*}" "$subcommand" "${current#*=}" "${current%%=*}="
    return
  fi
  while read -r kind name command value; do
    [[ $command == "$subcommand" ]] || continue
    [[ $kind == option ]] && words+="$name "
    [[ $kind == action ]] && actions+="$name "
  done <<<"$_petra_table"
  if [[ $current == -* ]]; then
    _petra_offer "$current" "$words"
  elif [[ -n $actions && ${#_petra_words[@]} -eq 3 ]]; then
    _petra_offer "$current" "$actions"
  else
    _petra_files "$current" ""
  fi
}

complete -F _petra petra
