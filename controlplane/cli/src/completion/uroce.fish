# Completion of uroce for fish.

function __uroce_candidates
    set -l words (commandline -opc) (commandline -ct)
    uroce complete $words[2..] 2>/dev/null
end

complete -c uroce -a '(__uroce_candidates)'
