#!/usr/bin/env bash
# make_arm64.sh FOLDER PYTHON: a Python for 64-bit ARM in FOLDER/root, which qemu-user runs, and the packages of a device
# in FOLDER/site. They come from Debian's archive and the package index; nothing is installed on this machine.
set -euo pipefail

folder=$(realpath -m "$1") python=$2
rm -rf "$folder"
mkdir -p "$folder"/apt/{lists,archives}/partial "$folder"/{root,site}
: >"$folder/apt/status"
cat >"$folder/apt/conf" <<END
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Sandbox::User "";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
END
export APT_CONFIG="$folder/apt/conf"
apt-get update -qq </dev/null
apt-get install -y -qq --no-install-recommends --download-only python3 libstdc++6 </dev/null >/dev/null
for package in "$folder"/apt/archives/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
rm -r "$folder/apt"

version=$(cd "$folder/root/usr/lib" && echo python3.*)
mapfile -t needed < <("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")')
"$python" -m pip install --quiet --disable-pip-version-check --target "$folder/site" -c constraints.txt \
  --only-binary :all: --python-version "${version#python}" --implementation cp \
  --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_28_aarch64 "${needed[@]}"
