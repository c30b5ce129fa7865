#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts on this machine, for mpirun: two_hosts.sh "QDISC" COMMAND... runs COMMAND on the first, 10.9.0.1, in a network and
# with a host name of its own; the second is 10.9.0.2. What either sends goes through tc's QDISC, such as "tbf rate 1gbit burst
# 64kb limit 64mb". Needs the right to make networks (root), ip, tc, unshare and nsenter. mpirun starts its processes on the
# second through this same script.
set -eu
if [ -n "${TWO_HOSTS_PEER:-}" ]; then # as mpirun's agent: HOST COMMAND...
  shift
  exec nsenter -t "$TWO_HOSTS_PEER" -n -u sh -c "$*"
fi
if [ -z "${TWO_HOSTS_INSIDE:-}" ]; then
  self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
  TWO_HOSTS_INSIDE=$self exec unshare -n -u "$self" "$@"
fi
discipline=$1
shift
unshare -n -u sh -c 'hostname petra-b; echo; exec sleep 100000' >"${TMPDIR:-/tmp}/two_hosts.$$" &
TWO_HOSTS_PEER=$!
trap 'kill "$TWO_HOSTS_PEER"; rm -f "${TMPDIR:-/tmp}/two_hosts.$$"' EXIT
while [ ! -s "${TMPDIR:-/tmp}/two_hosts.$$" ]; do
  kill -0 "$TWO_HOSTS_PEER" # it has failed
  sleep 0.05
done
hostname petra-a
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v1 netns "$TWO_HOSTS_PEER"
ip addr add 10.9.0.1/24 dev v0
ip link set v0 up
# shellcheck disable=SC2086
tc qdisc add dev v0 root $discipline
nsenter -t "$TWO_HOSTS_PEER" -n sh -ec "ip link set lo up; ip addr add 10.9.0.2/24 dev v1; ip link set v1 up
  tc qdisc add dev v1 root $discipline"
OMPI_MCA_plm_rsh_agent=$TWO_HOSTS_INSIDE
export TWO_HOSTS_PEER OMPI_MCA_plm_rsh_agent
status=0
"$@" || status=$?
exit "$status"
