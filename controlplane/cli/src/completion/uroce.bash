# Completion of uroce for bash.

_uroce() {
    local word help
    COMPREPLY=()
    while IFS=$'\t' read -r word help; do
        COMPREPLY+=("$word")
    done < <(uroce complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

# Names of files where uroce has no word.
complete -o default -F _uroce uroce
