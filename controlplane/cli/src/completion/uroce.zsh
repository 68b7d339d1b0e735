#compdef uroce
# Completion of uroce for zsh.

_uroce() {
    local -a candidates
    local line
    for line in "${(@f)$(uroce complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -z $line ]] || candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if ((${#candidates})); then
        _describe uroce candidates
    else
        _files
    fi
}

# This file may be in a folder of fpath, or be sourced after compinit.
if [[ ${funcstack[1]} == _uroce ]]; then _uroce "$@"; else compdef _uroce uroce; fi
