// Runs Filebeat's script on messages (a JSON list) and writes what it put into each event.
//
// node kinds_of.js SCRIPT < messages.json
const fs = require("fs");
const vm = require("vm");
const scope = vm.createContext({});
vm.runInContext(fs.readFileSync(process.argv[2], "utf8"), scope);
const messages = JSON.parse(fs.readFileSync(0, "utf8"));
const results = messages.map((message) => {
  const fields = {message};
  scope.process({Get: (name) => fields[name], Put: (name, value) => { fields[name] = value; }});
  delete fields.message;
  return fields;
});
console.log(JSON.stringify(results));
