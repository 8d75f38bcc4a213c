#!/usr/bin/env bash
# Every shell script parses, and passes shellcheck where it is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0
while IFS= read -r -d '' file; do
    head -n 1 "$file" | grep -q '^#!.*bash' || continue
    bash -n "$file" || failed=1
    command -v shellcheck >/dev/null || continue
    shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning "$file" || failed=1 # with what it sources
done < <(find ./*.sh .ci bench deploy docs examples fuzz tests tools -type f -print0 2>/dev/null)
exit $failed
