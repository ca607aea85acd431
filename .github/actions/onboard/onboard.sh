#!/usr/bin/env bash
# Runs `placer onboard` and says how it went: in the job's summary, and in one comment on the pull
# request, which later runs rewrite. Its exit code is placer's.
#
# MANIFEST, OUTPUT: files and folder. JOBS: models at a time, empty for the manifest's choice.
# PULL_REQUEST: number, empty for no comment; needs gh, GH_TOKEN and GITHUB_REPOSITORY.
set -euo pipefail

marker='<!-- placer onboard -->'
table="$OUTPUT/summary.md"

rm -f "$table" # An earlier run's, which the cache has brought along.
code=0
placer onboard "$MANIFEST" --output "$OUTPUT" --markdown "$table" ${JOBS:+--jobs "$JOBS"} || code=$?
if [ ! -f "$table" ]; then # The manifest is wrong; placer has said so.
  exit "$code"
fi
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  cat "$table" >>"$GITHUB_STEP_SUMMARY"
fi
if [ -n "${PULL_REQUEST:-}" ]; then
  body=$(mktemp)
  trap 'rm -f "$body"' EXIT
  { echo "$marker"; cat "$table"; } >"$body"
  comments="repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"
  comment() {
    local earlier
    earlier=$(gh api --paginate "$comments" \
      --jq ".[] | select(.body | startswith(\"$marker\")) | .id" | sed -n 1p) || return
    if [ -n "$earlier" ]; then
      gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$earlier" -F body=@"$body" --silent
    else
      gh api --method POST "$comments" -F body=@"$body" --silent
    fi
  }
  # The token may only read where the pull request comes from a fork.
  comment || echo "::warning::the table could not be commented on the pull request; it is in the job's summary"
fi
exit "$code"
