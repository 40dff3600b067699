# Shared by the scripts of this folder: go to the root, print headings, count the time.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

started=$SECONDS
step_name=

# Finds what rustup and `cargo install` put in the home folder, even if the shell does not.
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# Many tests wait for files and for other programs, so more of them run than there are processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((4 * $(getconf _NPROCESSORS_ONLN)))}

# step NAME COMMAND...: runs one step under a heading; if it fails, all ends and the name is shown.
step() {
    step_name=$1
    shift
    local step_started=$SECONDS
    printf '\n== %s\n' "$step_name"
    "$@"
    printf -- '-- %s: %d s\n' "$step_name" $((SECONDS - step_started))
    step_name=
}

# Prints the total time, and the step that failed, or was interrupted, if one did.
report() {
    local status=$? total=$((SECONDS - started))
    if [ "$status" -ne 0 ] || [ -n "$step_name" ]; then
        printf '\nFAILED in step "%s" after %d min %d s\n' \
            "${step_name:-setup}" $((total / 60)) $((total % 60)) >&2
    else
        printf '\nall steps passed in %d min %d s\n' $((total / 60)) $((total % 60))
    fi
}
