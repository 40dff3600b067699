# Shared by the scripts that serve volumes: a server of a store, and volumes as mounted disks. A disk
# is a loop device on a file of nbdfuse. Everything is in the folder $work; $binary is the program.
# shellcheck shell=bash

: "${work:?}" "${binary?}"
store=$work/store
socket=$work/nbd
mount=$work/mount
server=
loop=
fuse=

# Programs of administrators.
PATH+=:/usr/sbin:/sbin

# Says why file systems cannot be mounted here, if they cannot.
no_mounts_because() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "mounting needs root"
    elif ! unshare --mount true 2>/dev/null; then
        echo "root may not mount here"
    elif [ ! -w /dev/fuse ] || [ ! -w /dev/loop-control ]; then
        echo "there is no /dev/fuse or no /dev/loop-control"
    elif ! grep -qw "$1" /proc/filesystems && ! modprobe -q "$1" 2>/dev/null; then
        echo "this kernel has no $1"
    fi
}

uri() { echo "nbd+unix:///$1?socket=$socket"; }

until_true() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        if "$@"; then
            return
        fi
        sleep 0.05
    done
    echo "waited in vain for: $*" >&2
    return 1
}

serve() {
    : >"$work/server.log"
    "$binary" serve "$store" --unix "$socket" >>"$work/server.log" 2>&1 &
    server=$!
    until_true grep -q '^serving ' "$work/server.log"
}

kill_server() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
}

stop_server() {
    kill -TERM "$server"
    wait "$server"
}

# Makes a volume a block device.
attach() {
    mkdir -p "$work/fuse"
    nbdfuse "$work/fuse/disk" "$(uri "$1")" &
    fuse=$!
    until_true test -e "$work/fuse/disk"
    loop=$(losetup --find --show "$work/fuse/disk")
}

detach() {
    losetup -d "$loop"
    loop=
    until_true umount "$work/fuse"
    # It aborts now and then if its server was killed.
    wait "$fuse" 2>/dev/null || true
}

attach_and_mount() {
    attach "$1"
    mkdir -p "$mount"
    mount "$loop" "$mount"
}

unmount_and_detach() {
    umount "$mount"
    detach
}

# Ends and removes whatever there is, after a failure, too.
release() {
    umount -l "$mount" 2>/dev/null
    if [ -n "$loop" ]; then
        losetup -d "$loop"
    fi
    umount -l "$work/fuse" 2>/dev/null
    jobs -p | xargs -r kill -KILL 2>/dev/null
    wait 2>/dev/null
    rm -rf "$work"
}
