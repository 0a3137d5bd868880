#!/bin/sh
# Installs the SLURM that the tests start (cluster.py), where that is allowed: Debian, as root.
# None of its daemons is started here.
set -eu
PATH=$PATH:/usr/sbin:/sbin
needed=""
for pair in munged:munge slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client; do
    command -v "${pair%%:*}" >/dev/null || needed="$needed ${pair##*:}"
done
[ -n "$needed" ] || exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    # What a package asks before it starts its daemon; 101 is no.
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
apt-get -qq update
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $needed >/dev/null
