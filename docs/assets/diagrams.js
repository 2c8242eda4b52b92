// The theme colours the heads of arrows by names that this Mermaid begins with the name of the drawing:
// without this they are black on black in the dark.
const initialize = mermaid.initialize;
const line = "var(--md-mermaid-sequence-message-line-color)";
const heads = `
  [id$="-arrowhead"] path { fill: ${line}; stroke: none }
  [id$="-crosshead"] path { fill: ${line}; stroke: ${line} }
  [id$="-barbEnd"] { fill: var(--md-mermaid-edge-color); stroke: var(--md-mermaid-edge-color) }`;
mermaid.initialize = (settings) => initialize({ ...settings, themeCSS: (settings.themeCSS ?? "") + heads });
