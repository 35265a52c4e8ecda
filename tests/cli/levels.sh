# a level that this machine does not have is told once, with those it has, and the best of them does the work
best=$(env -u TSLEUTH_SIMD $TSLEUTH --version | sed 's/.*(\(.*\))/\1/')
told() { sed -E "s/has only portable[a-z0-9, ]*;/has only LEVELS;/; s/with $best\$/with BEST/"; }
TSLEUTH_SIMD=nonsense $TSLEUTH compare "$GOLDEN/compare/a.safetensors" "$GOLDEN/compare/a.safetensors" 2>&1 >/dev/null | told
TSLEUTH_SIMD=nonsense $TSLEUTH --version 2>/dev/null | sed "s/.*($best)/BEST/"
for level in portable "$best" ''; do TSLEUTH_SIMD=$level $TSLEUTH --version 2>&1 >/dev/null; done
